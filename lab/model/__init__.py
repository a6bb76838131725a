"""What traffic should take: sends on links with max-min fair shares. Knows arrays, no experiment."""
