"""Migrations from the tables of older versions to this version's. Released files never change."""
