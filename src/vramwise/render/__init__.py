"""Output formats, one file each. Renderers format results and decide nothing."""
