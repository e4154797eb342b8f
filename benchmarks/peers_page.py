def write_page(rows, env, out):
    pass
