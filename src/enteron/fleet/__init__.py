"""Many studies: a queue that survives, a catalogue that answers, and Ray.

task        a study that is to be read; whether somebody still writes to it
discovery   the studies under a root, each with a key that says nothing about a patient
ledger      what failed: attempts, quarantine, claims
work        one study: kept, read, or failed with a sentence
worker      a process that does such work; `processes` starts and watches several
cluster     the same on a Ray cluster
queue       which study next: retries, shared work, full disks
watch       the hot folder
catalogue   one row a study and one an event, kept current; `rows` makes them, `tables` store them
figures     what is counted over all studies
drift       what moved since the calibration
page        the fleet at a glance

Nothing here keeps a second list of what is finished: a reading folder says so itself.
"""

FLEET = "fleet"
"""The folder of the fleet's own files, beside the readings."""
