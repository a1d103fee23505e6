"""Everything that is read before a verb works: options, files, versions, data; `subject` opens a Subject."""
