"""Laws to run on what you add: each a sentence, and a function that fails where it is broken."""
