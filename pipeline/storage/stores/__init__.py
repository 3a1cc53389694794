"""Object stores and the hub: clients, whole objects, local copies of folders, locks."""
