"""The operator's views: read a service's shared memory alone, also of a supervisor that is stopped or dead."""
