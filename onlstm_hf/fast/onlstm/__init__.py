"""The recurrence of the ON-LSTM: its equations, the operator, and its fast paths."""
