"""The verbs, one module each: functions over a Subject, and the code that they share."""
