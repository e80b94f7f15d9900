"""The recurrence of the PRPN's reading network: its equations, the operator, and its fast paths."""
