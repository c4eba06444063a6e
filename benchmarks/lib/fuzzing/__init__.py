"""The differential fuzz: random programs, words and damaged files, and what must agree or be refused."""
