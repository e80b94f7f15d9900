"""Tables of single tasks, which the scripts print too: header and rows, from results and published figures."""
