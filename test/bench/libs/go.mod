module carillon/test/bench/libs

go 1.26.0

require (
	carillon v0.0.0
	github.com/RussellLuo/timingwheel v0.0.0-20220218152713-54845bda3108
	github.com/valyala/fastjson v1.6.10
)

replace carillon => ../../..
