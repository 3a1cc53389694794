"""Document filters and near-duplicate detection."""
