module github.com/secondrun/secondrun/store/storetest/lincheck

go 1.26.0

replace github.com/secondrun/secondrun => ../../..

require github.com/secondrun/secondrun v0.0.0

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
