"""Parts of vramwise for other trainers: each module needs the package it is named after, and can be used alone."""
