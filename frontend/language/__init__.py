"""What arrays, symbols and traced values share: names, operator functions, nested forms, the running trace."""
