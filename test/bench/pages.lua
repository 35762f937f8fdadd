-- Pages of a listing, one after the other and then again, for wrk with one connection.
local cursor

request = function()
  return wrk.format("GET", cursor and wrk.path .. "&cursor=" .. cursor or wrk.path)
end

response = function(_, _, body)
  cursor = body:match('"next_cursor":"([^"]+)"')
end
