"""Methods of learning together: one class a method, one table (`catalogue`) for simulations, jobs and documents."""
