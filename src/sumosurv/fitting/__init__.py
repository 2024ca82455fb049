"""How networks are fitted: read, learn, build, train, assemble. Estimators, searches and streamed fits share it."""
