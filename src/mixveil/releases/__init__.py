"""What leaves a party, and what its owner keeps of it: releases, ledger, spending, traces, screening."""
