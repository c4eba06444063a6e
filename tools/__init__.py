"""What a maintainer runs: the site of docs/, the commands in the documents, the lock file, the packages."""
