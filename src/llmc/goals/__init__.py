"""Goals: what a plan is, how it is checked, and what is to be done about it. Rules only."""
