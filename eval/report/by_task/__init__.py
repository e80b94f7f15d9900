"""The tables of each task: header and rows of text, from results and from published figures."""
