"""The validity issues: what each is, an attack that tries it, and honest code that resembles it."""
