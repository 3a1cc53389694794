"""Where a training shows how it goes, one file per tracker."""
