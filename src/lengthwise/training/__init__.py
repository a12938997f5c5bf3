"""Experiments, their run directories, and one readable loop that resumes bit for bit."""
