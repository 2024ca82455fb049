"""The steps of fitting networks: read, learn, build, train, assemble; shared by estimators, searches and streaming."""
