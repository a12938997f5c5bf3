"""What goes beyond the paper: length records, a verifier of claims about models, a leaderboard."""
