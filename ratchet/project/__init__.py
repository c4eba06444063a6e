"""A kernel of a repository of its own: several named problems, judged one by one and scored together."""
