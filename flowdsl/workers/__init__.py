"""Workers of any kind: handing out work to them, and putting their results in order."""
