module github.com/secondrun/secondrun/keyfn/keylint

go 1.26.0

require golang.org/x/tools v0.39.0

require (
	golang.org/x/mod v0.31.0 // indirect
	golang.org/x/sync v0.20.0 // indirect
)
