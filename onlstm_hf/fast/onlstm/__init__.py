"""The recurrence of the ON-LSTM: its operator and fast paths."""
