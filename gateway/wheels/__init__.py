"""The wheels: functions that manage the station itself, by their module, as in Salt."""
