"""Speed beside other libraries of federated learning, each in an environment of its own."""
