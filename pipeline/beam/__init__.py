"""The Apache Beam job of `prepare`: its plan, tasks, runners and workers."""
