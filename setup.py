"""What `pyproject.toml` has no words for: code in C, built where there is a compiler."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "penstock.runtimes.native.lane",
            ["src/penstock/runtimes/native/lane.c"],
            extra_compile_args=["-std=gnu11", "-O2", "-Wall"],
            optional=True,  # without a compiler, lanes are threads of Python's
        )
    ]
)
