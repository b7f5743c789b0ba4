"""Training of classifiers: rows, fits, measures, selection, and the graph that is written. Needs the extra [train]."""
