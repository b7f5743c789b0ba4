"""Ways to tell people and other systems of alerts."""
