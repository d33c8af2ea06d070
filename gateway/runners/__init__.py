"""The runners: functions of the station itself, by their module, as in Salt."""
