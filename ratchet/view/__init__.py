"""What a person sees: terminal, trace."""
