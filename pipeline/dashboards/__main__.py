"""The command `python -m pipeline.dashboards`."""

from pipeline import dashboards

if __name__ == "__main__":
    dashboards.main()
