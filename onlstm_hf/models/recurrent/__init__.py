"""What all recurrent models share: inputs, state, head, loss, generation, and the stack with its dropouts."""
