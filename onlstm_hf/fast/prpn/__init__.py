"""The recurrence of the PRPN's reading network: its operator and fast paths."""
