"""The verbs, one module each under its own name: functions over a Subject, and what they share."""
