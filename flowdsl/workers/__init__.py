"""Workers, of any kind: how work is handed out to them, and what they made put in order."""
