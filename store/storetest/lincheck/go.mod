module github.com/secondrun/secondrun/store/storetest/lincheck

go 1.26.0

replace github.com/secondrun/secondrun => ../../..

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/secondrun/secondrun v0.0.0
)

require (
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	golang.org/x/exp v0.0.0-20250620022241-b7579e27df2b // indirect
	golang.org/x/sys v0.34.0 // indirect
	modernc.org/libc v1.66.3 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.11.0 // indirect
	modernc.org/sqlite v1.38.2 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
