"""x"""
def read_series_archive(settings, attention):
    raise NotImplementedError
