"""Data inspection before training: labels, lengths, repetitions, contradictions, suspicious rows.

    rows.inspect_split --> lengths, duplicates (data/near_duplicates.py), suspicious --> report.inspect_rows --> page
"""
