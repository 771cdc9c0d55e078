"""What carries a job's messages: addresses, certificates, Flower."""
