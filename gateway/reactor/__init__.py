"""The reactor: events that match a rule call what the rule's files say."""
