"""The web page that shows what models find in a sentence."""
