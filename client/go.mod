module carillon/client

go 1.26.0
